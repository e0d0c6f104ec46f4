"""What is made of the public calls: each file stands alone, and nothing below imports it."""
