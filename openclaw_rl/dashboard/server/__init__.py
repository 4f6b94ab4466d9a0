"""The server side of the web page: /ui/ and /ui/api over `views/page/`.

contract   every route with the shapes of its bodies and answers; writes ../api.d.ts
"""
