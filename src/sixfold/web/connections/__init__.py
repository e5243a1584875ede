"""The server's sockets: uvicorn's protocols, the local socket, and limits on connections and addresses."""
