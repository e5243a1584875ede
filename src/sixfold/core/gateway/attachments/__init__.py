"""Files in a request, in the form that the model server reads: documents as text, URLs as bytes."""
