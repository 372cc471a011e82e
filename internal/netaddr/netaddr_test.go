package netaddr_test

import (
	"testing"

	"example.org/carstate/internal/netaddr"
)

func TestBaseURL_OtherMachinesByTLS(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:8082": "http://127.0.0.1:8082", "0.0.0.0:8082": "http://127.0.0.1:8082", "[::]:8082": "http://[::1]:8082",
		":8082": "https://:8082", "10.0.0.1:8082": "https://10.0.0.1:8082", "http://10.0.0.1:80/": "http://10.0.0.1:80",
	} {
		if got := netaddr.BaseURL(addr); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}
