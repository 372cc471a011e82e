//go:build !broken

package broken

// Has reports whether this build has the defect: never.
func Has(Defect) bool { return false }
