// Command container is the static program in the containers of the drills on a real node. It
// records the start and the end of its pod in a volume, and ends as its flags say.
//
//	container [--data DIR] [--linger 3s]             runs until SIGTERM
//	container --exit 3 --after 1s --say "no shard"   ends by itself, with a termination message
//	container --calls DIR                            a leader answers its workers, which dial until SIGKILL
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// terminationMessage is the file from which a kubelet reads the termination message of a container.
const terminationMessage = "/dev/termination-log"

func main() {
	data := flag.String("data", "", "directory with the file pods, to which the program adds a line at its start and its end")
	linger := flag.Duration("linger", 0, "how long to run on after SIGTERM")
	exit := flag.Int("exit", -1, "end by itself with this code")
	after := flag.Duration("after", 0, "how long to run before that")
	say := flag.String("say", "", "termination message")
	calls := flag.String("calls", "", "directory for the diary of the calls between a leader and its workers")
	flag.Parse()

	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM, syscall.SIGINT)
	write(*data, "born")
	switch {
	case *calls != "":
		call(*calls, stopped)
	case *exit >= 0:
		select {
		case <-time.After(*after):
			end(*say, *exit)
		case <-stopped:
		}
	default:
		<-stopped
	}
	time.Sleep(*linger)
	write(*data, "ended")
}

// write adds a line to the file pods: what happened, the UID and the name of the pod.
func write(dir, what string) {
	line := fmt.Sprintf("%s %s %s\n", what, os.Getenv("POD_UID"), os.Getenv("POD_NAME"))
	fmt.Print(line)
	if dir == "" {
		return
	}
	file, err := os.OpenFile(filepath.Join(dir, "pods"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		end(err.Error(), 1)
	}
	defer file.Close()
	if _, err := file.WriteString(line); err != nil {
		end(err.Error(), 1)
	}
}

func end(message string, code int) {
	fmt.Println(message)
	_ = os.WriteFile(terminationMessage, []byte(message), 0o644)
	os.Exit(code)
}

const (
	port  = "6379"
	pause = 100 * time.Millisecond // between two dials
	limit = time.Second            // of resolving the name, of connecting, and of an answer
)

// A diary is the file of a pod about its calls. Each line is a word, a time in milliseconds, and the UID of the other
// pod or an error:
//
//	born    the program began
//	met     a leader answered, or a worker called
//	missed  the leader's name is not there, or no pod answers at its address
//	told    the worker got SIGTERM
type diary struct{ file *os.File }

func (d diary) add(what string, at time.Time, about string) {
	line := fmt.Sprintf("%s %d %s\n", what, at.UnixMilli(), strings.ReplaceAll(about, "\n", " "))
	if _, err := d.file.WriteString(line); err != nil {
		end(err.Error(), 1)
	}
}

// call keeps a diary in dir. A leader answers until SIGTERM. A worker dials its leader's name until SIGKILL, as the
// workers of Ray do.
func call(dir string, stopped <-chan os.Signal) {
	file, err := os.OpenFile(filepath.Join(dir, os.Getenv("POD_UID")), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		end(err.Error(), 1)
	}
	d := diary{file}
	d.add("born", time.Now(), "")
	if os.Getenv("LWS_WORKER_INDEX") != "0" {
		d.dial(net.JoinHostPort(os.Getenv("LWS_LEADER_ADDRESS"), port), stopped)
	}
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		end(err.Error(), 1)
	}
	go d.serve(listener)
	<-stopped
}

// serve exchanges UIDs with each caller.
func (d diary) serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			end(err.Error(), 1)
		}
		go func() {
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(limit))
			if caller, err := bufio.NewReader(conn).ReadString('\n'); err == nil {
				d.add("met", time.Now(), strings.TrimSpace(caller))
				_, _ = fmt.Fprintln(conn, os.Getenv("POD_UID"))
			}
		}()
	}
}

// dial dials an address again and again, and does not return.
func (d diary) dial(address string, stopped <-chan os.Signal) {
	for ticks := time.Tick(pause); ; {
		select {
		case <-stopped:
			d.add("told", time.Now(), "")
		case at := <-ticks:
			go func() {
				if leader, err := greet(address); err != nil {
					d.add("missed", at, err.Error())
				} else {
					d.add("met", at, leader)
				}
			}()
		}
	}
}

// greet exchanges UIDs with the leader that has an address now.
func greet(address string) (leader string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(limit))
	if _, err := fmt.Fprintln(conn, os.Getenv("POD_UID")); err != nil {
		return "", err
	}
	leader, err = bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(leader), err
}
