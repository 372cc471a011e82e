// Package term is the terminal of the commands. It writes text that cannot control the terminal,
// shows the progress of long work, and asks questions. It knows nothing of the service.
package term
