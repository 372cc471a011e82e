module example.org/carstate/deploy/proxy

go 1.27.0

toolchain go1.27.4

require golang.org/x/mod v0.43.0
