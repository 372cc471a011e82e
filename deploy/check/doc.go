// Package check checks the container files in deploy/ with the parsers of their users: BuildKit,
// Docker Compose and Kubernetes. It is a separate module, so that these dependencies are not
// dependencies of carstate. It does not start containers: only a machine with a container engine
// can tell whether the image can be built and started.
package check
