module carstate/bench

go 1.27.0

toolchain go1.27.3

require carstate v0.0.0

replace carstate => ../
