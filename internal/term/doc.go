// Package term is the terminal of the commands: text that cannot control it, the progress of long
// work, and questions. It knows nothing of the service.
package term
