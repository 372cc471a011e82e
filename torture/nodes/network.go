package nodes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"carstate/bench/must"
)

// network is a virtual switch with a virtual cable to each NATS server, and one to this machine,
// where the nodes of carstate run. Each server has its own network namespace. Packets on a
// disconnected cable are lost without an error.
type network struct {
	tag    string // prefix of every name
	subnet string // "198.18.7."
	made   []string
}

// needs returns an error if this machine cannot create such a network.
func needs() error {
	if os.Geteuid() != 0 {
		return errors.New("run it as root: it makes network namespaces, to cut servers off")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return errors.New("the program ip is missing: apt-get install -y iproute2")
	}
	n, err := openNetwork(context.Background(), 1)
	if err == nil {
		err = n.close()
	}
	if err != nil {
		return fmt.Errorf("network namespaces and bridges cannot be made here, for which it needs CAP_SYS_ADMIN and "+
			"CAP_NET_ADMIN: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// openNetwork creates a network for a number of servers.
func openNetwork(ctx context.Context, servers int) (_ *network, err error) {
	sweep()
	n := &network{tag: fmt.Sprintf("cst%d", os.Getpid())}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	defer must.Catch(&err)
	n.subnet = must.Get(freeSubnet())
	hub := n.tag + "hub"
	must.Do(n.namespace(ctx, hub))
	commands := []string{
		"-n " + hub + " link add switch type bridge",
		"-n " + hub + " link set switch up",
		// This link is removed together with the namespace of its other end.
		"link add " + n.tag + " type veth peer name host netns " + hub,
		"-n " + hub + " link set host master switch up",
		"addr add " + n.subnet + "1/24 dev " + n.tag,
		"link set " + n.tag + " up",
	}
	for i := range servers {
		must.Do(n.namespace(ctx, n.name(i)))
		commands = append(commands,
			fmt.Sprintf("-n %s link add s%d type veth peer name cable netns %s", hub, i, n.name(i)),
			fmt.Sprintf("-n %s link set s%d master switch up", hub, i),
			fmt.Sprintf("-n %s addr add %s/24 dev cable", n.name(i), n.address(i)),
			fmt.Sprintf("-n %s link set cable up", n.name(i)),
			fmt.Sprintf("-n %s link set lo up", n.name(i)),
		)
	}
	for _, c := range commands {
		must.Do(ip(ctx, c))
	}
	return n, nil
}

// sweep removes the network namespaces that an earlier run of the
// torture left behind because it was killed.
func sweep() {
	left, _ := filepath.Glob("/run/netns/cst*")
	for _, file := range left {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(file), "cst%d", &pid); err != nil {
			continue
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); errors.Is(err, fs.ErrNotExist) {
			_ = ip(context.Background(), "netns del "+filepath.Base(file)) // what remains does no harm
		}
	}
}

// freeSubnet returns a /24 that this machine does not use, from the range that is reserved
// for benchmarks and not routed (RFC 2544).
func freeSubnet() (string, error) {
	taken, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for i := range 256 {
		subnet := fmt.Sprintf("198.18.%d.", (os.Getpid()+i)%256)
		free := true
		for _, a := range taken {
			free = free && !strings.HasPrefix(a.String(), subnet)
		}
		if free {
			return subnet, nil
		}
	}
	return "", errors.New("no subnet of 198.18.0.0/16 is free")
}

func (n *network) namespace(ctx context.Context, name string) error {
	if err := ip(ctx, "netns add "+name); err != nil {
		return err
	}
	n.made = append(n.made, name)
	return nil
}

func (n *network) name(server int) string    { return fmt.Sprintf("%ss%d", n.tag, server) }
func (n *network) address(server int) string { return fmt.Sprintf("%s%d", n.subnet, 10+server) }

// inside returns the command prefix that runs a program in a server's namespace.
func (n *network) inside(server int) []string {
	return []string{"ip", "netns", "exec", n.name(server)}
}

// pull disconnects a server's cable, and plug reconnects it.
func (n *network) pull(server int) error { return n.port(fmt.Sprintf("s%d", server), "down") }
func (n *network) plug(server int) error { return n.port(fmt.Sprintf("s%d", server), "up") }

// pullAll disconnects the cable between all servers and the nodes of carstate. plugAll
// reconnects it.
func (n *network) pullAll() error { return n.port("host", "down") }
func (n *network) plugAll() error { return n.port("host", "up") }

// port sets a port of the switch up or down, even if the attempt is ending.
func (n *network) port(name, to string) error {
	return ip(context.Background(), "-n "+n.tag+"hub link set "+name+" "+to)
}

// close removes all namespaces.
func (n *network) close() (err error) {
	for _, name := range n.made {
		err = errors.Join(err, ip(context.Background(), "netns del "+name))
	}
	n.made = nil
	return err
}

func ip(ctx context.Context, args string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, strings.TrimSpace(string(out)))
	}
	return nil
}
