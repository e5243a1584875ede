"""What an output says of its origin: a signed record, embedded in the file's own metadata.

`record` says what a manifest holds and how it is written, `signing` signs and checks it, and
`embedding` puts the text into a file and finds it again, without a media library and without
touching a pixel or a sample.
"""
