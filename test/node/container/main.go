// Command container is what runs in the containers of the drills on a real node: a static
// program that says in a volume who lived, and ends as it is told to.
//
//	container [--data DIR] [--linger 3s]             runs until it is told to end
//	container --exit 3 --after 1s --say "no shard"   ends by itself, and leaves a last word
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

// lastWord is where a kubelet looks for the termination message of a container.
const lastWord = "/dev/termination-log"

func main() {
	data := flag.String("data", "", "directory in which every life writes its name into the file lives")
	linger := flag.Duration("linger", 0, "how long to go on after being told to end")
	exit := flag.Int("exit", -1, "end by itself with this code")
	after := flag.Duration("after", 0, "how long to wait before that")
	say := flag.String("say", "", "what to leave as termination message")
	flag.Parse()

	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	write(*data, "born")
	if *exit >= 0 {
		select {
		case <-time.After(*after):
			end(*say, *exit)
		case <-told:
		}
	} else {
		<-told
	}
	time.Sleep(*linger)
	write(*data, "ended")
}

// write adds a line to the file of lives: what happened, and to which pod.
func write(dir, what string) {
	line := fmt.Sprintf("%s %s %s\n", what, os.Getenv("POD_UID"), os.Getenv("POD_NAME"))
	fmt.Print(line)
	if dir == "" {
		return
	}
	file, err := os.OpenFile(filepath.Join(dir, "lives"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		end(err.Error(), 1)
	}
	defer file.Close()
	if _, err := file.WriteString(line); err != nil {
		end(err.Error(), 1)
	}
}

func end(word string, code int) {
	fmt.Println(word)
	_ = os.WriteFile(lastWord, []byte(word), 0o644)
	os.Exit(code)
}
