"""What people write around the lines of programs: titles, sentences, advice, and what they report themselves."""
