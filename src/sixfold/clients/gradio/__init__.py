"""Client of Gradio 4, 5 and 6: describes applications and runs their functions through the queue."""
