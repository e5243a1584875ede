"""Files in a request, in the form that the model server supports: documents as text, URLs as bytes."""
