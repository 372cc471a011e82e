// Package archtest has only tests of the repository: what imports and requires what, and which
// document names what. They read ARCHITECTURE.md, so that it and the code agree.
package archtest
