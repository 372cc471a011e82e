package broken

import "testing"

// What people run has no defect, whatever the environment says.
func TestOff(t *testing.T) {
	t.Setenv("CARSTATE_BROKEN", string(AcknowledgeEarly))
	if Has(AcknowledgeEarly) || Has("") {
		t.Error("a build without the tag is broken")
	}
}
