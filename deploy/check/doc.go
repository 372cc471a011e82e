// Package check checks the container files in deploy/ with the parsers of their users: BuildKit,
// Docker Compose and Kubernetes. It is a separate module, so that these dependencies are not
// dependencies of carstate. It needs no container engine: it runs the steps of the Dockerfile, and
// starts carstate in a directory with the files of the image.
package check
