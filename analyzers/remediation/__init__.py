"""What is done about a verdict, as pure functions: plan, ladder, guards, step, node history. No database, no scheduler."""
