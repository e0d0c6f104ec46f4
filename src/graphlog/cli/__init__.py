"""The command line: parse, call one public function, print. One file a help panel."""
