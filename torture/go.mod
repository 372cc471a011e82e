module carstate/torture

go 1.27.0

toolchain go1.27.3

replace (
	carstate => ../
	carstate/bench => ../bench
)

require (
	carstate v0.0.0-00010101000000-000000000000
	carstate/bench v0.0.0-00010101000000-000000000000
)
