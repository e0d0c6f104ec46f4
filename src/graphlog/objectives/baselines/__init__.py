"""The methods GraphLoG is compared with, one a file, each with the settings of its source."""
