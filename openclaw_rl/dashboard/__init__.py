"""The web page: its files, as browsers get them, and in `server/` what answers them."""
