// Command container is the static program in the containers of the drills on a real node. It
// records the start and the end of its pod in a volume, and runs until SIGTERM.
//
//	container [--data DIR] [--linger 3s]
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
	flag.Parse()

	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM, syscall.SIGINT)
	write(*data, "born")
	<-stopped
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
	check(err)
	defer file.Close()
	_, err = file.WriteString(line)
	check(err)
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
