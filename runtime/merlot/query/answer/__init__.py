"""States of segments, combined by value on servers and reduced to rows on the broker."""
