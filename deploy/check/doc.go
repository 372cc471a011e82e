// Package check judges the container files beside it with the parsers of those
// who read them: BuildKit and Docker Compose. It is a module of its own, so that
// their dependencies do not weigh on carstate's. It runs no container: whether
// the image is built and starts, only a machine with an engine can tell.
package check
