module example.org/carstate/client

go 1.23.0
