module carstate/bench

go 1.27.0

toolchain go1.27.3

replace carstate => ../
