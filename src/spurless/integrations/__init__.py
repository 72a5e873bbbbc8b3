"""What lets other libraries use spurless: scikit-learn, loops of one's own, Lightning, Hugging Face."""
