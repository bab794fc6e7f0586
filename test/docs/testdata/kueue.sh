#: GROUP READY REVISION is output

begin() { :; }
