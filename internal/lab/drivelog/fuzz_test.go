package drivelog_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"example.org/carstate/internal/lab/drivelog"
	"example.org/carstate/internal/test/testkit"
)

func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.[cgj]*")
	if err != nil || len(files) == 0 {
		f.Fatalf("drives in testdata: got %d, %v, want some", len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		testkit.NoError(f, err)
		f.Add(b)
		if len(b) > 600 {
			f.Add(zip(f, b[:600]))
			f.Add(zip(f, b)[:200])
		}
	}
	f.Add([]byte("Time,Vehicle Speed Sensor,,Time,Vehicle Speed Sensor\n10:00:00,1,2,3,4\nTime,Vehicle Speed Sensor,,Time,Vehicle Speed Sensor\n"))
	f.Add([]byte("Time;Vehicle Speed Sensor\n10:00:00,5;1,5\n;;;\n"))
	f.Add([]byte("VehicleSpeedAverage;VehicleSpeedInstantaneous;traffic\n;;LowCongestionCondition\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		d, err := drivelog.ReadSmall(bytes.NewReader(file))
		if err != nil {
			if msg := err.Error(); len(msg) > 400 {
				t.Fatalf("the error: got %d bytes, want 400 at most", len(msg))
			}
			return
		}
		checkSums(t, d)
		d.Notes()
	})
}
