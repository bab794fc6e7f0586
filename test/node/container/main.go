// Command container is the static program in the containers of the drills on a real node. It
// records the start and the end of its pod in a volume, and ends as its flags say.
//
//	container [--data DIR] [--linger 3s]             runs until SIGTERM
//	container --exit 3 --after 1s --say "no shard"   ends by itself, with a termination message
//	container --calls DIR                            a leader answers its workers, which dial until SIGKILL
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
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
