"""What tests of Dovetail, and of programs that use it, are made of."""
