"""The learned hierarchy as people hold it in their hands: files, a page, a figure."""
