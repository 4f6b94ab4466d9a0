"""Model Context Protocol, the part that tools need, on the wire: requests and answers of JSON-RPC.

client   a server's tools -> a toolbox          boxed   a server in a box, over its stdin and stdout
wire     how a message gets there and back      http    a server at a URL, over streamable HTTP
"""
