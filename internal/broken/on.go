//go:build broken

package broken

import "os"

var chosen = Defect(os.Getenv("CARSTATE_BROKEN"))

// Has reports whether this process has the defect.
func Has(d Defect) bool { return d == chosen }
