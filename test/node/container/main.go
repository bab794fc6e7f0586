// Command container is the static program in the containers of the drills on a real node. It
// records the start and the end of its pod in a volume.
//
//	container [--data DIR] [--linger 3s]  runs until SIGTERM
//	container --calls DIR                 a leader answers its workers, which dial until SIGKILL
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

func main() {
	data := flag.String("data", "", "directory with the file pods, to which the program adds a line at its start and its end")
	linger := flag.Duration("linger", 0, "how long to run on after SIGTERM")
	calls := flag.String("calls", "", "directory for the diary of the calls between a leader and its workers")
	flag.Parse()

	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM, syscall.SIGINT)
	write(*data, "born")
	if *calls != "" {
		call(*calls, stopped)
	} else {
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
		end(err.Error())
	}
	defer file.Close()
	if _, err := file.WriteString(line); err != nil {
		end(err.Error())
	}
}

func end(message string) {
	fmt.Println(message)
	os.Exit(1)
}
