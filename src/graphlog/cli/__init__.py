"""The command line: parse options, call one public function, print. One file per help panel."""
