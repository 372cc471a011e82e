// Package client calls the admin API.
package client
