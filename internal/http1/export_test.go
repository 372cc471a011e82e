package http1

var (
	HeadEnd        = headEnd
	SkipEmptyLines = skipEmptyLines
)
