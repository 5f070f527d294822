"""What people write around the lines of programs: titles, sentences, quotations, advice, and what they report themselves."""
