// Package check checks the container files in deploy/ with the parsers of their users: BuildKit,
// Docker Compose and Kubernetes. It is a separate module, so that these are not dependencies of
// carstate. It needs no container engine.
package check
