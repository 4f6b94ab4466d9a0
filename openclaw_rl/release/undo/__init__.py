"""What people take back: undo, forget, import, roll back."""
