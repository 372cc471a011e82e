package query

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// fillRedis stores tokens and vehicles and the script, and returns the script's
// name.
func fillRedis(ctx context.Context, r *process, addr string, f *field) (sha string, err error) {
	if err := accepts(ctx, r, addr); err != nil {
		return "", err
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return "", err
	}
	in := bufio.NewReader(c)
	for file, prefix := range map[string]string{f.tokens: "t:", f.vehicles: "v:"} {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(string(text)) {
			if _, err := redisDo(c, in, "SET", prefix+strings.TrimSpace(line), "1"); err != nil {
				return "", err
			}
		}
	}
	return redisDo(c, in, "SCRIPT", "LOAD", redisScript)
}

// redisDo sends one command and returns its answer, which has one line or is a
// bulk string without line ends.
func redisDo(c net.Conn, in *bufio.Reader, args ...string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := c.Write([]byte(b.String())); err != nil {
		return "", err
	}
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	switch line[0] {
	case '-':
		return "", errors.New("a command was refused by Redis")
	case '$':
		line, err = in.ReadString('\n')
		return strings.TrimSpace(line), err
	}
	return strings.TrimSpace(line[1:]), nil
}
