"""What is done about a verdict, as pure functions: the plan, the ladder, the guards, and the step of each remediation."""
