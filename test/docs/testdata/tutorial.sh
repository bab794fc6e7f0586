#: until_ready runs kubectl lockstep status minimal --watch

begin() { :; }

# until_ready ends a command that watches, as the reader does with Ctrl-C, when the set is ready.
until_ready() {
	"$@" &
	ready minimal
	kill $!
}
