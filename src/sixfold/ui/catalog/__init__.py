"""The catalog: the list of models, their forms, examples, code samples and live sessions."""
